"""A shop: customers order by a remote call, and everybody who watches the orders gets them."""

from itertools import count

from crewel import RemoteCallError, Service, Session

shop = Service("shop")
_numbers = count(1)


@shop.remote_call("/shop/order")
def order(session: Session, data: object) -> dict[str, object]:
    """Take an order: `{"item": "tea"}`. The result has its number."""
    if not isinstance(data, dict) or not data.get("item"):
        raise RemoteCallError("item is missing")
    taken = {"number": next(_numbers), "item": data["item"]}
    shop.publish("/shop/orders", taken)
    return taken
