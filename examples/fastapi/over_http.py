"""A dependency that asks ratelimit-server over HTTP: clients see the fields of the RateLimit draft."""

import os

import httpx
from fastapi import Header, HTTPException, Response

server = httpx.AsyncClient(base_url=os.environ.get("LIMITS_HTTP", "http://127.0.0.1:8080"), timeout=1)


async def limited(response: Response, x_api_key: str = Header()) -> None:
    try:
        answer = await server.post("/v1/check", json={"policy": "requests", "key": x_api_key})
    except httpx.TransportError:
        return  # nobody counts now: admit
    fields = {name: value for name, value in answer.headers.items() if name.startswith(("ratelimit", "retry-after"))}
    if answer.status_code == 429:
        raise HTTPException(429, "too many requests", fields)
    answer.raise_for_status()
    response.headers.update(fields)
