"""What a paper takes along: methods, references, LaTeX tables, figures at column width."""
