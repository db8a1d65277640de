// Asks the server with what Node.js has itself, over HTTP, and with node-redis. Arguments: its addresses for HTTP and for the
// Redis protocol. Prints the answers.
const { createClient } = require("redis");

async function main() {
  const [http, redisAddress] = process.argv.slice(2);
  const user = "node";
  for (let turn = 0; turn < 3; turn++) {
    const answer = await fetch(`http://${http}/v1/check`, {
      method: "POST",
      body: JSON.stringify({ policy: "requests", key: user }),
    });
    const body = await answer.json();
    console.log("http", answer.status, body.allowed, body.remaining, answer.headers.get("ratelimit-policy"));
  }
  const redis = createClient({ url: `redis://${redisAddress}` });
  await redis.connect();
  console.log("ping", await redis.ping());
  for (let turn = 0; turn < 3; turn++) {
    const [limited, limit, remaining] = await redis.sendCommand(["RL.CHECK", "requests", user]);
    console.log("redis", limited, limit, remaining);
  }
  const all = [1, 2].map(() => redis.sendCommand(["CL.THROTTLE", user, "0", "1", "86400"]));
  console.log("together", ...(await Promise.all(all)).map(([limited]) => limited));
  await redis.sendCommand(["RL.CHECK", "nothing", user]).catch((error) => console.log("error", error.message));
  await redis.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
