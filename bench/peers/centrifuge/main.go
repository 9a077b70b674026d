// Centrifuge, the library of Centrifugo, with presence, and the joins and leaves of a channel sent to its subscribers. A client whose
// subscribe has data is present and gets none of them.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/centrifugal/centrifuge"
)

func main() {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	node.OnConnecting(func(_ context.Context, event centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: event.Name, Info: event.Data}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(event centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
			reply(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{
				EmitPresence: true, EmitJoinLeave: true, PushJoinLeave: len(event.Data) == 0,
			}}, nil)
		})
	})
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}))
	fmt.Printf("ready http://%s/\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
