"""How what people type becomes values: options, files that are kept apart, streams."""

from dagengine.cli.common.command import Commands
from dagengine.cli.common.files import Reads, Writes, guard
from dagengine.cli.common.output import open_streams, say
from dagengine.system.terminal import plain

__all__ = ["Commands", "Reads", "Writes", "guard", "open_streams", "plain", "say"]
