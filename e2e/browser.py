"""A headless browser for the tests: pictures of pages, and pages as they are after their scripts
have run."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chrome-headless-shell", "google-chrome")
PATIENCE_SECONDS = 60


def browser():
    """Returns the path of a Chromium; fails when none is installed."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"none of {', '.join(NAMES)} is installed: run scripts/deps.sh test"
    return found


def _run(html_path, *options):
    """Opens a local page without network, and returns what the browser prints; fails if the browser
    fails."""
    return _open(html_path, *options).stdout


def _open(html_path, *options):
    """Opens a page as _run does, and returns the completed process."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser(), "--headless", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
            "--virtual-time-budget=5000",
        ]  # fmt: skip
        if os.getuid() == 0:
            command.append("--no-sandbox")  # Chromium's sandbox does not run as root
        command += [*options, Path(html_path).resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stderr[-4000:]}"
    return done


def screenshot(html_path, png_path, width, height):
    """Writes a picture of a page, `width` by `height` CSS pixels, as PNG."""
    png_path = Path(png_path).resolve()
    png_path.unlink(missing_ok=True)
    _run(html_path, f"--screenshot={png_path}", f"--window-size={width},{height}")
    assert png_path.is_file() and png_path.stat().st_size > 0, f"the browser wrote no {png_path}"


def dump_dom(html_path, *options):
    """Returns a page as HTML, after its scripts have run."""
    return _run(html_path, *options, "--dump-dom")


def complaints(html_path):
    """Returns what a page logs to the console: errors of scripts, and what could not be loaded."""
    done = _open(html_path, "--enable-logging=stderr", "--dump-dom")
    return [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def print_pdf(html_path, pdf_path):
    """Prints a page to a PDF file."""
    pdf_path = Path(pdf_path).resolve()
    pdf_path.unlink(missing_ok=True)
    _run(html_path, f"--print-to-pdf={pdf_path}", "--no-pdf-header-footer")
    assert pdf_path.is_file() and pdf_path.stat().st_size > 0, f"the browser wrote no {pdf_path}"
