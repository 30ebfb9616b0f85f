"""Code that is not part of fedco2: how it is named, found, loaded and told apart from ours."""
