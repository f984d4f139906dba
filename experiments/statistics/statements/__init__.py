"""Published statements, tested: `schema` reads them, `values` measures them, `verdicts` decides them."""
