"""Published sizes of encoders, encoder-decoders, mixtures of experts and some decoders."""
