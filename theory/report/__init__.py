"""A report as files: figures, the page, JSON and matrices."""
