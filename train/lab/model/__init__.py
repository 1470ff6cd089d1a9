"""Less common model parts: experts, latent attention, special heads."""
