"""A run: its rounds, its folder, its checkpoints, how it resumes, and which accuracy it reports."""
