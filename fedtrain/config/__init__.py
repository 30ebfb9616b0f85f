"""All that decides a run: its settings, how TOML spells them, and the paper's protocols as presets."""
