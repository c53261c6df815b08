"""Tests in a browser, on the UI that people open. They need Chromium and run with `make verify`."""
