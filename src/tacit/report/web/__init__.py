"""The live page: what runs leave in their folders, shown while they go on. It reads, and changes nothing."""
