"""The router's side: which attempt a call is, and which model the prompt was sent to.

A router is a process whose role is `router` (`PROMPTPATH_ROLE=router`): its requests are seen by the ASGI shim, its
calls by the HTTP client shim. Each call counts up the attempts of the request that it is made for
(`promptpath.attempt`) and says which model it asks for; one that fails has `error.type`. So the request span says
what was asked for (`gen_ai.request.model`) and what was chosen (`gen_ai.response.model`), and time lost in failed
attempts can be told from time in the one that answered.
"""
