"""What runs and sweeps leave in their folders, found and read for those who show it: the live page, reports.

Nothing here touches a running party: files are read, again and again, only as far as they are new.
"""
