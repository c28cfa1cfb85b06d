"""Many replicas of one split model, each with its own protection, strength and seed, trained as one batched model."""
