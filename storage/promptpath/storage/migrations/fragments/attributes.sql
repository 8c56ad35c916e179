Array(Tuple(key String, value Tuple({{value}})))
