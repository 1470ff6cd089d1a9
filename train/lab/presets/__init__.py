"""Published sizes of encoders, encoder-decoders and mixtures of experts."""
