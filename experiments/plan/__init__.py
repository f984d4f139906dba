"""A request turned into a plan: every part built once and checked before anything is written."""
