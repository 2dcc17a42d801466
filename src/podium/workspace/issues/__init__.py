"""Issues of a project: a folder of Markdown files, or the issues on a forge."""
