"""The lab's data sets, one file each, by name."""
