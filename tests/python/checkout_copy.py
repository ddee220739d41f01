"""A folder in which the commands of pages run as their readers run them."""


def checkout_copy(folder, root, build):
    """Fills an empty folder with links to the tree `root` and, as `build`, to the
    build folder; models made there stay there. Returns the folder."""
    for entry in root.iterdir():
        if entry.name not in {"build", "models", ".git"}:
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(build)
    return folder
