"""The step itself: two parties, one cut."""
