#!/bin/bash
# Makes the logs of this folder, by real servers with their default formats: `make.sh ROOT ENVOY`. ROOT is a folder into which
# Debian's packages nginx-light, apache2, haproxy, caddy, varnish, squid and lighttpd are unpacked with `dpkg -x`, with those
# that they depend on; ENVOY is the program. The same 30 requests are sent to each server; tests/servers.rs knows them.
set -u
R=${1:?the root of the packages} ENVOY=${2:?the program of Envoy}
W=$(mktemp -d); mkdir -p "$W/www" "$W/out"; chmod 777 "$W" "$W/out"
export LD_LIBRARY_PATH=$R/usr/lib/x86_64-linux-gnu:$R/usr/lib/x86_64-linux-gnu/varnish:$R/lib/x86_64-linux-gnu PATH=$R/usr/sbin:$R/usr/bin:$PATH
for p in a b c login static; do echo "$p" > $W/www/$p; done; echo hello > $W/www/index.html
PIDS=""
# nginx
cat > $W/nginx.conf <<X
pid $W/nginx.pid; error_log $W/nginx.err; events {} daemon off; master_process off;
http { access_log $W/out/nginx.log; client_body_temp_path $W/n1; proxy_temp_path $W/n2; fastcgi_temp_path $W/n3; uwsgi_temp_path $W/n4; scgi_temp_path $W/n5;
server { listen 127.0.0.1:18001; root $W/www; location = /old { return 301 /a; } } }
X
nginx -c $W/nginx.conf -p $W > $W/nginx.out 2>&1 & PIDS="$PIDS $!"
# apache
cat > $W/apache.conf <<X
ServerRoot $R/usr/lib/apache2
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule alias_module modules/mod_alias.so
ServerName localhost
Listen 127.0.0.1:18002
PidFile $W/apache.pid
DefaultRuntimeDir $W
Mutex file:$W
ErrorLog $W/apache.err
DocumentRoot $W/www
<Directory />
Require all granted
</Directory>
Redirect /old /a
$(grep -h '^LogFormat' $R/etc/apache2/apache2.conf)
CustomLog $W/out/apache-vhost.log vhost_combined
CustomLog $W/out/apache.log combined
X
apache2 -f $W/apache.conf -DFOREGROUND > $W/apache.out 2>&1 & PIDS="$PIDS $!"
# lighttpd
cat > $W/lighttpd.conf <<X
server.document-root="$W/www"
server.port=18003
server.bind="127.0.0.1"
server.modules=("mod_accesslog","mod_redirect")
accesslog.filename="$W/out/lighttpd.log"
url.redirect=("^/old"=>"/a")
server.errorlog="$W/lighttpd.err"
index-file.names=("index.html")
X
lighttpd -D -f $W/lighttpd.conf -m $R/usr/lib/lighttpd > $W/lighttpd.out 2>&1 & PIDS="$PIDS $!"
# haproxy with a syslog receiver
python3 - <<X > $W/syslog.out 2>&1 &
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("127.0.0.1",18514))
f=open("$W/out/haproxy.log","wb",0)
while True:
    d=s.recv(65536); f.write(d.rstrip(b"\n")+b"\n")
X
PIDS="$PIDS $!"
cat > $W/haproxy.cfg <<X
global
  log 127.0.0.1:18514 local0
defaults
  log global
  mode http
  option httplog
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend web
  bind 127.0.0.1:18004
  default_backend app
backend app
  server nginx1 127.0.0.1:18011
X
cat > $W/nginx2.conf <<X
pid $W/nginx2.pid; error_log $W/nginx2.err; events {} daemon off; master_process off;
http { access_log off; client_body_temp_path $W/m1; proxy_temp_path $W/m2; fastcgi_temp_path $W/m3; uwsgi_temp_path $W/m4; scgi_temp_path $W/m5;
server { listen 127.0.0.1:18011; root $W/www; location = /old { return 301 /a; } } }
X
nginx -c $W/nginx2.conf -p $W > $W/nginx2.out 2>&1 & PIDS="$PIDS $!"
haproxy -db -f $W/haproxy.cfg > $W/haproxy.out 2>&1 & PIDS="$PIDS $!"
# caddy
cat > $W/Caddyfile <<X
{
  admin off
  auto_https off
}
http://127.0.0.1:18005 {
  root * $W/www
  redir /old /a
  file_server
  log {
    output file $W/out/caddy.log
  }
}
X
HOME=$W caddy run --config $W/Caddyfile --adapter caddyfile > $W/caddy.out 2>&1 & PIDS="$PIDS $!"
# varnish
printf 'vcl 4.0;\nbackend default { .host = "127.0.0.1"; .port = "18011"; }\n' > $W/v.vcl
varnishd -F -n $W/vn -a 127.0.0.1:18006 -f $W/v.vcl -T none -j none -p vmod_path=$R/usr/lib/x86_64-linux-gnu/varnish/vmods > $W/varnish.out 2>&1 & PIDS="$PIDS $!"
# squid
cat > $W/squid.conf <<X
http_port 127.0.0.1:18007
access_log stdio:$W/out/squid.log
cache_log $W/squid.cachelog
pid_filename $W/squid.pid
coredump_dir $W
cache deny all
http_access allow all
mime_table $R/usr/share/squid/mime.conf
icon_directory $R/usr/share/squid/icons
error_directory $R/usr/share/squid/errors/templates
unlinkd_program $R/usr/lib/squid/unlinkd
pinger_enable off
netdb_filename none
visible_hostname localhost
logfile_rotate 0
X
squid -N -f $W/squid.conf > $W/squid.out 2>&1 & PIDS="$PIDS $!"
# envoy
cat > $W/envoy.yaml <<X
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 18008 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: a
          use_remote_address: true
          access_log:
          - name: f
            typed_config: { "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: $W/out/envoy.log }
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes: [{ match: { prefix: "/" }, route: { cluster: app } }]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: app
    load_assignment: { cluster_name: app, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 18011 } } } }] }] }
X
"$ENVOY" -c $W/envoy.yaml --concurrency 1 --base-id 77 > $W/envoy.out 2>&1 & PIDS="$PIDS $!"
sleep 6
varnishncsa -n $W/vn -w $W/out/varnish.log > $W/varnishncsa.out 2>&1 & PIDS="$PIDS $!"
sleep 1
ask() { # port, more
  port=$1; shift
  for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    i=$((n % 3 + 2)); [ $((n % 7)) = 0 ] && i=9
    paths=(/ /a "/b?x=1&y=2" /login /missing /old "/a%20b" "/c?q=%22%5B")
    p=${paths[$((n % 8))]}
    agents=("curl/8.0" "Mozilla/5.0 (X11; \"quoted\") [x]" "")
    a=${agents[$((n % 3))]}
    m=GET; [ $((n % 5)) = 0 ] && m=HEAD; [ $((n % 11)) = 0 ] && m=POST
    if [ $m = HEAD ]; then o="-I"; elif [ $m = POST ]; then o="-d x=1"; else o=""; fi
    u=""; [ $((n % 10)) = 3 ] && u="-u bob:x"
    curl -s -o /dev/null --max-time 5 --interface 127.0.0.$i $o $u -A "$a" -e "http://example.org/?n=$n" "$@" "http://127.0.0.1:$port$p"
    [ $((n % 6)) = 0 ] && sleep 0.4
  done
}
for port in 18001 18002 18003 18004 18005 18006 18008; do ask $port & A="${A:-} $!"; done
wait $A
ask 18011 -x http://127.0.0.1:18007
sleep 3
for p in $PIDS; do kill $p 2>/dev/null; done
sleep 2
cp "$W"/out/*.log "$(dirname "$0")"
