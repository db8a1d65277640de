"""A service whose requests ratelimit-server counts: see README.md."""

from fastapi import Depends, FastAPI

import over_http
import over_redis

app = FastAPI()


@app.get("/live")
async def live() -> str:
    return "yes"


@app.get("/http", dependencies=[Depends(over_http.limited)])
async def by_http() -> str:
    return "served"


@app.get("/redis", dependencies=[Depends(over_redis.limited)])
async def by_redis() -> str:
    return "served"
