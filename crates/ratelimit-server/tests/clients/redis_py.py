# Calls the server with redis-py. Argument: its port. Prints the answers.
import sys

import redis

for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True)
    key = f"user:{protocol}"
    print("ping", client.ping())
    for _ in range(4):
        print("throttle", *client.execute_command("CL.THROTTLE", key, 2, 3, 86400))
    pipeline = client.pipeline(transaction=False)
    for _ in range(7):
        pipeline.execute_command("RL.CHECK", "requests", key)
    print("pipeline", *(answer[0] for answer in pipeline.execute()))
    try:
        client.execute_command("RL.CHECK", "no-such-policy", key)
    except redis.ResponseError as error:
        print("error", error)
    print("after", client.ping())
    client.close()
