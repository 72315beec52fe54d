"""The page of a run: data packed into one file, the built front end beside its sources."""

from dagengine.report.page.run_page import page_of, write_page, write_run_page

__all__ = ["page_of", "write_page", "write_run_page"]
