# A client that respects Retry-After. Arguments: URL, API key, how many requests are to be admitted. Ends when
# they have been, and one request was refused, however long that takes on a slow machine.
# Prints a line for each request: when it was sent and when answered (nanoseconds), the status, and whether it was sent
# after a wait as told.
import sys
import time
import urllib.error
import urllib.request

url, api_key, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
waited, refused = False, False
while wanted > 0 or not refused:
    request = urllib.request.Request(url, headers={"x-api-key": api_key})
    sent = time.monotonic_ns()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status, retry_after = response.status, None
    except urllib.error.HTTPError as error:
        status, retry_after = error.code, error.headers["retry-after"]
    print(sent, time.monotonic_ns(), status, int(waited), flush=True)
    waited = status == 429
    refused = refused or waited
    if status == 200:
        wanted -= 1
    elif waited:
        time.sleep(int(retry_after))
    else:
        sys.exit(f"unexpected status {status}")
