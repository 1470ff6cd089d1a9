"""Judge a trained model: on texts, and on questions whose answers are known."""
