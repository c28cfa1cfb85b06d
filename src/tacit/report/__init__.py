"""What runs leave in their folders, read for those who show it: reports, the live page, figures.

Nothing here touches a running party: files are read, again and again, only as far as they are new.
"""
