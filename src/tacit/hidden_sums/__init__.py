"""Sums of labels over groups that nobody sees: the feature party's groups stay hidden, the label party's labels too."""
