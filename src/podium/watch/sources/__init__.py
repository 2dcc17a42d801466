"""Work with a project's issues, which are Markdown files in a folder or issues on a forge."""
