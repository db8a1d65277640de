"""A dependency that asks ratelimit-server over the Redis protocol: one round trip, with any Redis client."""

import os

import redis.asyncio as redis
from fastapi import Header, HTTPException, Response

server = redis.Redis.from_url(os.environ.get("LIMITS_REDIS", "redis://127.0.0.1:6380"), socket_timeout=1)


async def limited(response: Response, x_api_key: str = Header()) -> None:
    try:
        refused, _limit, left, retry_after, _reset = await server.execute_command("RL.CHECK", "requests", x_api_key)
    except redis.ConnectionError:
        return  # nobody counts now: admit
    if refused:
        raise HTTPException(429, "too many requests", {"retry-after": str(retry_after)})
    response.headers["x-ratelimit-remaining"] = str(left)
