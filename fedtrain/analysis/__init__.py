"""What can be told of a method or a run before anything is trained."""
