"""Who may ask the SQL endpoint, and whose rows they see."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from promptpath.collector.auth import AuthError, Scope, Tokens, Unauthenticated, token_in
from promptpath.collector.sql_errors import ACCESS_DENIED, AUTHENTICATION_FAILED, SqlError

#: Says whose rows a value of `Authorization` may see, None for all; raises SqlError.
Authenticate = Callable[[str], str | None]


def authenticator(tokens: Tokens, owner_token: str) -> Authenticate:
    """By the tokens of a file, each of which sees its own tenant's rows.

    Args:
        owner_token: sees all. Only who may read the store's directory has it: the owner's own commands.
    """

    def authenticate(authorization: str) -> str | None:
        try:
            token = token_in(authorization, basic=True)
            if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), owner_token.encode()):
                return None
            return tokens.verify(token, Scope.QUERY).tenant
        except Unauthenticated as error:
            raise SqlError(AUTHENTICATION_FAILED, str(error)) from None
        except AuthError as error:
            raise SqlError(ACCESS_DENIED, str(error)) from None

    return authenticate
