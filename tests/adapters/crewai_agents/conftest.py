"""CrewAI sends telemetry unless this is said before it is imported; nothing here may leave the machine."""

from __future__ import annotations

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_DISABLE_TRACKING="true", CREWAI_TRACING_ENABLED="false")
