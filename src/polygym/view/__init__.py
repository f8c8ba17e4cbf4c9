"""What a person sees of a run; reads the ground only."""
