"""Which language a text is in: fastText models, found, checked, run, trained, evaluated."""
