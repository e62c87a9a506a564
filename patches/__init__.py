"""The patch series on the pinned SGLang, and its engine: read, lint, apply exactly, take back, lay out, edit.

Change a patch in four steps; nothing of SGLang's source is ever committed to this repository:

    make edit            # .cache/edit/<version>: a git work tree, pristine first, then one commit a patch
    (change files there, then `git commit`, `git commit --amend`, or `git rebase -i`)
    make refresh         # commits become patches/<version>/*.patch; unchanged ones stay the same bytes
    make check-patches   # the dry run that CI does

Nobody but a person writes a patch's words and nobody but `refresh` its numbers: hashes, touched files and order.
"""
