"""Data sets that are found in the user's own files: folders of images, tables, arrays."""
