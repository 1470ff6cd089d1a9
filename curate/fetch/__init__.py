"""Files from the web and from object stores: fetched whole, resumed, checked, or refused."""
