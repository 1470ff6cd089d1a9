"""Parts of models that few have: experts, latent attention."""
