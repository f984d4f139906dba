"""The Transformer that every encoder is trained in, and the choices it offers: layouts, temperature, precision."""
