"""Labels of the site: queues of pictures, each with the labelling page and its API."""
