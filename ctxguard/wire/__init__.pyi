from ctxguard.wire.audit import AuditLog as AuditLog
from ctxguard.wire.guard import Guard as Guard
from ctxguard.wire.guard import GuardSettings as GuardSettings
from ctxguard.wire.proxy import proxy_app as proxy_app
from ctxguard.wire.sessions import Credentials as Credentials
from ctxguard.wire.transport import AsyncTransport as AsyncTransport
from ctxguard.wire.transport import Transport as Transport
from ctxguard.wire.transport import guarded_http_client as guarded_http_client
