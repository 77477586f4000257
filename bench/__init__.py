"""vkconv beside other libraries: python bench/run.py."""
