"""Rows -> one page, tables, figures, and what a paper needs. Rows only, no model."""
