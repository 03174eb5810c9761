"""Tables, figures and a page from the files of a study."""
