"""The document at the end: what a party's messages could give away, for a reader who has to sign it."""
