"""Labels that people give to a folder of pictures: boxes or classes, one JSON file per picture."""
