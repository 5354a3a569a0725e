"""`make test-containers`: the images and the compose file on a real Docker engine, from a clone to a published dataset."""
